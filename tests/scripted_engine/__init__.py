"""A server that plays exact bytes at exact times and keeps its own log of when it did.

ScriptedServer plays what a handler returns for each request, down to the raw bytes and the
way the connection ends. ScriptedEngine builds a whole inference engine on it (SGLang-,
vLLM/OpenAI- and llama.cpp-shaped endpoints, a decode mode with a known truth); it also runs
as a process: `python -m tests.scripted_engine --port N --dialect sglang`, or EngineProcess.
"""

from tests.scripted_engine.engine import ScriptedEngine
from tests.scripted_engine.generation import Generation
from tests.scripted_engine.process import EngineProcess, free_port
from tests.scripted_engine.server import Play, ScriptedServer, Seen
from tests.scripted_engine.wire import json_play, play, sse_play, stream_play, text_play

__all__ = [
    "EngineProcess",
    "Generation",
    "Play",
    "ScriptedEngine",
    "ScriptedServer",
    "Seen",
    "free_port",
    "json_play",
    "play",
    "sse_play",
    "stream_play",
    "text_play",
]
