"""Liveness, facts, tokens and metrics of a server whose model is a script."""

from __future__ import annotations

import pytest
from scripted_runner import ScriptedRunner
from server_live import Live, serve
from server_script import CHAT, GREEDY, PROMPT
from specdec.tokenizer import Tokenizer


@pytest.mark.parametrize("path", ["/health", "/ready", "/ping", "/health_generate"])
def test_a_server_that_is_up_says_so(live: Live, path: str) -> None:
    answer = live.client.get(path)
    assert (answer.status_code, answer.content) == (200, b"")


def test_health_never_generates_and_health_generate_does(live: Live) -> None:
    before = live.engine.scheduler.totals.output_tokens
    live.client.get("/health")
    assert live.engine.scheduler.totals.output_tokens == before
    live.client.get("/health_generate")
    assert live.engine.scheduler.totals.output_tokens == before + 1


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
def test_model_info_names_the_model(live: Live, path: str) -> None:
    facts = live.client.get(path).json()
    assert facts["served_model_name"] == "tiny"
    assert facts["is_generation"] is True
    assert facts["model_path"] == facts["tokenizer_path"] == "checkpoint"


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_server_info_has_settings_limits_and_state(live: Live, path: str) -> None:
    live.generate(input_ids=PROMPT, sampling_params=GREEDY)
    facts = live.client.get(path).json()
    assert facts["max_total_num_tokens"] == 1024
    assert facts["max_req_input_len"] == 511
    assert facts["max_running_requests"] == 4
    assert facts["disable_radix_cache"] is True
    assert facts["decode_log_interval"] == 4
    assert facts["speculative_num_steps"] == 3
    state = facts["internal_states"][0]
    expected = 1 + state["spec_num_correct_drafts"] / state["spec_verify_ct"]
    assert state["avg_spec_accept_length"] == pytest.approx(expected)


def test_models_lists_the_one_model(live: Live) -> None:
    (card,) = live.client.get("/v1/models").json()["data"]
    assert (card["id"], card["max_model_len"]) == ("tiny", 512)


def test_a_pool_smaller_than_the_context_is_the_limit_that_clients_are_told(
    tokenizer: Tokenizer,
) -> None:
    """A checkpoint may declare a million tokens where the pool holds a few thousand."""
    with serve(lambda: ScriptedRunner(context=1_048_576), tokenizer) as live:
        (card,) = live.client.get("/v1/models").json()["data"]
        told = live.client.post("/tokenize", json={"prompt": "x"}).json()["max_model_len"]
        params = {**GREEDY, "max_new_tokens": card["max_model_len"] - len(PROMPT) + 1}
        body = {"input_ids": PROMPT, "sampling_params": params}
        assert live.client.post("/generate", json=body).status_code == 400
    assert card["max_model_len"] == told == 1024


def test_loads_has_the_sections_that_are_asked_for(live: Live) -> None:
    (entry,) = live.client.get("/v1/loads").json()["loads"]
    assert entry["num_running_reqs"] == entry["queues"]["waiting"] == 0
    assert entry["memory"]["token_capacity"] == entry["max_total_num_tokens"] == 1024
    (entry,) = live.client.get("/v1/loads?include=core,spec").json()["loads"]
    assert "speculative" in entry
    assert not {"memory", "queues"} & set(entry)


@pytest.mark.parametrize("query", ["include=bogus", "format=xml", "dp_rank=1"])
def test_loads_refuses_a_query_that_it_would_have_to_ignore(live: Live, query: str) -> None:
    answer = live.client.get(f"/v1/loads?{query}")
    assert answer.status_code == 400
    assert f"'{query.split('=')[0]}'" in answer.json()["message"]


def test_an_unknown_path_is_a_sentence(live: Live) -> None:
    answer = live.client.get("/nothing/here")
    assert answer.status_code == 404
    assert "no '/nothing/here'" in answer.json()["error"]["message"]
    assert live.client.get("/generate").status_code == 405


def test_tokenize_and_detokenize_are_each_other_s_inverse(live: Live) -> None:
    text = "näïve 日本語 🙂"
    tokens = live.client.post("/tokenize", json={"prompt": text}).json()
    assert tokens["count"] == len(tokens["tokens"])
    assert tokens["max_model_len"] == 512
    back = live.client.post("/detokenize", json={"tokens": tokens["tokens"]}).json()
    assert back == {"text": text}


def test_tokenize_counts_what_a_chat_will_cost(live: Live) -> None:
    counted = live.client.post("/tokenize", json={"messages": CHAT}).json()["count"]
    body = {"messages": CHAT, "max_tokens": 1, "temperature": 0}
    usage = live.client.post("/v1/chat/completions", json=body).json()["usage"]
    assert usage["prompt_tokens"] == counted


def test_detokenize_refuses_unknown_ids(live: Live) -> None:
    answer = live.client.post("/detokenize", json={"tokens": [5, 384]})
    assert answer.status_code == 400
    assert "384" in answer.json()["error"]["message"]


def scrape(live: Live) -> dict[str, float]:
    from prometheus_client.parser import text_string_to_metric_families

    text = live.client.get("/metrics").text
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


def test_metrics_count_what_happened(live: Live) -> None:
    before = scrape(live)
    meta = live.generate(input_ids=PROMPT, sampling_params=GREEDY)["meta_info"]
    after = scrape(live)
    grown = {name: after[name] - before[name] for name in after if name in before}
    assert grown["sglang:prompt_tokens_total"] == 4
    assert grown["sglang:generation_tokens_total"] == 24
    assert grown["sglang:num_requests_total"] == 1
    assert grown["sglang:spec_verify_calls_total"] == meta["spec_verify_ct"]
    assert grown["specdec:proposed_drafts_total"] == meta["spec_num_proposed_drafts"]
    assert grown["specdec:correct_drafts_total"] == meta["spec_num_correct_drafts"]
    assert grown["sglang:time_to_first_token_seconds_count"] == 1
    assert grown["sglang:inter_token_latency_seconds_count"] == 23
    assert grown["sglang:e2e_request_latency_seconds_count"] == 1
    assert after["sglang:max_total_num_tokens"] == 1024
    assert after["sglang:num_running_reqs"] == 0
    assert after["sglang:token_usage"] == 0
    assert after["sglang:spec_accept_length"] > 1
    assert after["sglang:cached_tokens_total"] == 0


def test_health_probes_stay_out_of_the_histograms(live: Live) -> None:
    before = scrape(live)
    live.client.get("/health_generate")
    after = scrape(live)
    name = "sglang:time_to_first_token_seconds_count"
    assert after[name] == before[name]


def test_metrics_are_off_by_default(tokenizer: Tokenizer) -> None:
    with serve(ScriptedRunner, tokenizer) as live:
        assert live.client.get("/metrics").status_code == 404
