"""From the text of a YAML file to its one node, or to the fault that keeps it from being read."""

from __future__ import annotations

from dataclasses import dataclass

import yaml
from yaml.nodes import Node

from qualify.campaign.faults import CampaignFaults, Fault


@dataclass(frozen=True)
class Genre:
    """What a file should be, for the faults of one that is something else."""

    article: str
    noun: str
    start: str  # how its first line reads


CAMPAIGN = Genre("a", "campaign", "campaign: NAME")


def compose(text: str, file: str, genre: Genre) -> Node | None:
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except RecursionError:
        raise whole_file(file, "it is nested too deeply", "Write it flat.") from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        sentence = f"there is an unprintable character (U+{error.character:04X}) here"
        fault = Fault(file, line, sentence, "Delete it, or write it as an escape in quotes.")
        raise CampaignFaults([fault]) from None
    except yaml.MarkedYAMLError as error:
        raise CampaignFaults([_syntax(error, text, file)]) from None
    if len(nodes) > 1:
        line = line_of(nodes[1])
        fault = Fault(file, line, "a second document starts here", f"One {genre.noun} a file.")
        raise CampaignFaults([fault])
    return nodes[0] if nodes else None


def _syntax(error: yaml.MarkedYAMLError, text: str, file: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    lines = text.splitlines()
    written = lines[mark.line] if mark and mark.line < len(lines) else ""
    problem = error.problem or "it cannot be parsed"
    if "\t" in written[: len(written) - len(written.lstrip())] or r"'\t'" in problem:
        return Fault(file, line, "a tab indents this line", "Indent with spaces.")
    if "undefined alias" in problem:
        return Fault(
            file, line, "`*name` refers to an anchor, and there is none", "Quote the text."
        )
    if "{{" in written or "}}" in written:
        sentence = "a `{{ placeholder }}` stands here, and nothing fills it in"
        return Fault(file, line, sentence, "Write the value itself, or quote the text.")
    remedy = "Look for a missing space after `:`, an open quote or bracket, or uneven indents."
    return Fault(file, line, f"this is not YAML: {problem}", remedy)


def whole_file(file: str, sentence: str, remedy: str) -> CampaignFaults:
    return CampaignFaults([Fault(file, None, sentence, remedy)])


def line_of(node: Node) -> int:
    return int(node.start_mark.line) + 1
