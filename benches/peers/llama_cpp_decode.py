"""llama.cpp on the same file with the same threads. Prints tokens per second: of the prompt, and of the answer, after a prompt of each length."""

import sys
import time

from llama_cpp import Llama

path, threads, prompt_tokens, answer_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
llm = Llama(model_path=path, n_ctx=4096, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)
prompt = llm.tokenize(b"word " * prompt_tokens)[:prompt_tokens]
llm.eval(prompt[:8])
llm.reset()
began = time.perf_counter()
llm.eval(prompt)
prompt_rate = len(prompt) / (time.perf_counter() - began)
token = llm.sample(temp=0.0)
began = time.perf_counter()
for _ in range(answer_tokens):
    llm.eval([token])
    token = llm.sample(temp=0.0)
print(prompt_rate, answer_tokens / (time.perf_counter() - began))
