"""Shared by the evaluations: the worst-case AgentDojo harness, an external package that is located by its folder."""
import os
import sys

sys.path.insert(0, os.environ["REGENT_DOJO"])
import deciders  # noqa: E402
import run  # noqa: E402
from agentdojo.functions_runtime import FunctionsRuntime  # noqa: E402
from agentdojo.task_suite.load_suites import get_suites  # noqa: E402
from labels import LABELS  # noqa: E402

SUITES = os.environ.get("REGENT_SUITES", "banking,travel").split(",")
__all__ = ["LABELS", "benches", "judge", "run", "runtime"]


def benches():
    return [run.Bench(name, get_suites(run.VERSION)[name], "plain") for name in SUITES]


def judge(track):
    """`regent judge --stdio`, or another decider to measure, as a child process."""
    return deciders.make("cmd:" + os.environ["REGENT_JUDGE"], track)


def runtime(bench):
    return FunctionsRuntime(bench.suite.tools)
