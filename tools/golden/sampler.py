#!/usr/bin/env python3
"""Expected tokens of the sampler (src/engine/sampler.h), written with numpy alone.

    python3 tools/golden/sampler.py > src/engine/testing/sampler_cases.json

Random numbers are numpy's own Philox4x64-10: key (seed, 0), counter (index, 0, 0, 0). Its generator
increments the counter before each block, so it starts from index - 1 (as a 256-bit number).
Cases in which a decision is closer than 1e-6 are left out, so that exp() of another library agrees.
"""
import json
import sys

import numpy as np

F = np.float32


class Close(Exception):
    pass


def uniform(seed, index):
    counter = (index - 1) % (1 << 256)
    words = [(counter >> (64 * i)) & ((1 << 64) - 1) for i in range(4)]
    raw = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64),
                           counter=np.array(words, dtype=np.uint64)).random_raw()
    return (int(raw) >> 11) * 2.0 ** -53


def sample(logits, prompt, answer, p, index):
    x = np.array(logits, dtype=F)
    for token, bias in p.get("logit_bias", []):
        x[token] = F(x[token] + F(bias))
    rp = F(p.get("repetition_penalty", 1))
    fp = F(p.get("frequency_penalty", 0))
    pp = F(p.get("presence_penalty", 0))
    for token in sorted(set(prompt) | set(answer)):
        x[token] = F(x[token] / rp) if x[token] > 0 else F(x[token] * rp)
        n = answer.count(token)
        if n:
            x[token] = F(x[token] - F(F(fp * F(n)) + pp))
    t = float(F(p.get("temperature", 1)))
    if t == 0:
        return int(np.argmax(x))
    order = sorted(range(len(x)), key=lambda i: (-float(x[i]), i))
    k = p.get("top_k", 0)
    if k > 0:
        order = order[:k]
    weight = {i: float(np.exp((float(x[i]) - float(x[order[0]])) / t)) for i in order}
    top_p = float(F(p.get("top_p", 1)))
    if top_p < 1:
        wanted, running, kept = top_p * sum(weight[i] for i in order), 0.0, []
        for i in order:
            running += weight[i]
            kept.append(i)
            if abs(running - wanted) < 1e-6:
                raise Close
            if running >= wanted:
                break
        order = kept
    min_p = float(F(p.get("min_p", 0)))
    for i in order:
        if min_p > 0 and abs(weight[i] - min_p) < 1e-6:
            raise Close
    order = sorted(i for i in order if weight[i] >= min_p)
    wanted, running = uniform(p["seed"], index) * sum(weight[i] for i in order), 0.0
    for i in order:
        running += weight[i]
        if abs(running - wanted) < 1e-6:
            raise Close
        if running > wanted:
            return i
    return order[-1]


def main():
    rng = np.random.default_rng(20)
    variants = [
        {}, {"temperature": 0}, {"temperature": 0.5}, {"temperature": 2.5}, {"top_k": 1}, {"top_k": 5},
        {"top_p": 0.3}, {"top_p": 0.9}, {"min_p": 0.1}, {"min_p": 1.0}, {"top_k": 8, "top_p": 0.7},
        {"top_k": 10, "top_p": 0.8, "min_p": 0.2, "temperature": 1.7}, {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.8, "temperature": 0}, {"presence_penalty": 1.5},
        {"frequency_penalty": 0.7, "presence_penalty": -0.5},
        {"frequency_penalty": 2, "repetition_penalty": 1.1, "temperature": 0},
        {"logit_bias": [[3, 2.5], [7, -100.0]]}, {"logit_bias": [[11, 6.0]], "temperature": 0},
        {"logit_bias": [[1, -3.0]], "repetition_penalty": 1.2, "presence_penalty": 0.4,
         "frequency_penalty": 0.3, "temperature": 0.8, "top_k": 20, "top_p": 0.95, "min_p": 0.02},
    ]
    cases = []
    for n, variant in enumerate(variants):
        for seed in (n, 2 ** 63 + n):
            p = dict(variant, seed=seed)
            logits = [float(F(v)) for v in rng.normal(0, 2, 48)]
            prompt = [int(i) for i in rng.integers(0, 48, 6)]
            answer = [int(i) for i in rng.integers(0, 12, 9)]
            ids = []
            for index in range(24):
                try:
                    ids.append([index, sample(logits, prompt, answer, p, index)])
                except Close:
                    pass
            cases.append({"params": p, "logits": logits, "prompt": prompt, "answer": answer, "ids": ids})
    uniforms = [[str(s), i, uniform(s, i)] for s in (0, 1, 42, 2 ** 64 - 1) for i in (0, 1, 2, 1000, 2 ** 40)]
    json.dump({"uniforms": uniforms, "cases": cases}, sys.stdout)
    print()


main()
