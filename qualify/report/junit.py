"""JUnit XML: one test case a verdict, for the test views of CI systems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from qualify.checks.verdict import Verdict

_EVIDENCE = 4000  # characters of one failure's evidence; verdicts.json has all


def junit(name: str, verdicts: Sequence[Verdict]) -> bytes:
    """A suite a check. fail is a failure where it is demanded; inconclusive, not-run and
    failures that only inform are skipped, with the sentence; waived passes and says so."""
    root = ET.Element("testsuites", name=_clean(name))
    by_check: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_check.setdefault(verdict.check, []).append(verdict)
    for check, found in by_check.items():
        suite = ET.SubElement(root, "testsuite", name=_clean(check), tests=str(len(found)))
        counts = {"failures": 0, "errors": 0, "skipped": 0}
        for verdict in found:
            case = ET.SubElement(
                suite, "testcase", classname=_clean(check), name=_clean(verdict.subject)
            )
            said = _clean(verdict.sentence)
            if verdict.outcome == "fail" and verdict.demanded:
                counts["failures"] += 1
                failure = ET.SubElement(case, "failure", message=said, type="fail")
                failure.text = _clean(_evidence(verdict))
            elif verdict.outcome in ("pass", "waived"):
                ET.SubElement(case, "system-out").text = f"{verdict.outcome}: {said}"
            else:
                counts["skipped"] += 1
                ET.SubElement(case, "skipped", message=f"{verdict.outcome}: {said}")
        for key, count in counts.items():
            suite.set(key, str(count))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(s.get(key, "0")) for s in root)))
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _evidence(verdict: Verdict) -> str:
    text = json.dumps(verdict.evidence, ensure_ascii=False, indent=1, default=str)
    return text if len(text) <= _EVIDENCE else text[:_EVIDENCE] + "\n..."


def _clean(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold, however they are escaped."""
    return "".join(c if _allowed(ord(c)) else "\ufffd" for c in text)


def _allowed(code: int) -> bool:
    return (
        code in (0x9, 0xA, 0xD)
        or 0x20 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or code >= 0x10000
    )
