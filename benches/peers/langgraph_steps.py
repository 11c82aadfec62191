"""LangGraph with its SQLite checkpointer: a loop of two nodes that do nothing, a checkpoint after each. Prints steps per second."""

import operator
import os
import sqlite3
import sys
import tempfile
import time
from typing import Annotated, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    messages: Annotated[list, operator.add]
    turn: int


TURNS = int(sys.argv[1])


def think(state: State) -> dict:
    return {"messages": [{"role": "assistant", "call": state["turn"]}], "turn": state["turn"] + 1}


def act(state: State) -> dict:
    return {"messages": [{"role": "tool", "text": "hello"}]}


graph = StateGraph(State)
graph.add_node("think", think)
graph.add_node("act", act)
graph.add_edge(START, "think")
graph.add_edge("think", "act")
graph.add_conditional_edges("act", lambda state: END if state["turn"] >= TURNS else "think")
with tempfile.TemporaryDirectory() as folder:
    connection = sqlite3.connect(os.path.join(folder, "checkpoints.sqlite"), check_same_thread=False)
    app = graph.compile(checkpointer=SqliteSaver(connection))
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": 4 * TURNS}
    started = time.perf_counter()
    app.invoke({"messages": [], "turn": 0}, config)
    print(2 * TURNS / (time.perf_counter() - started))
