"""What a changed call is given and returns: seen through, or left to the plain call."""

from __future__ import annotations

import types

import pytest
import torch

from autobrrr.injected.live_torch.torch_types import Abstain
from autobrrr.injected.remedies.model_calls.call_results import map_tensors, refuse_unseen

pytestmark = pytest.mark.integration


def test_keys_and_values_of_attention_come_in_full_and_those_of_the_call_stay() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32)
    model, tokens = transformers.GPT2LMHeadModel(config), torch.randint(0, 64, (2, 8))
    with torch.autocast("cpu", torch.bfloat16):
        given = model(input_ids=tokens, labels=tokens)
    found = map_tensors(torch, given, lambda each: each.float())
    assert type(found) is type(given)
    assert type(found.past_key_values) is type(given.past_key_values)  # type: ignore[attr-defined]
    kinds = [made.past_key_values.layers[1].keys.dtype for made in (given, found)]  # type: ignore[attr-defined]
    assert kinds == [torch.bfloat16, torch.float32]
    with pytest.raises(Abstain, match="DynamicCache"):
        refuse_unseen(torch, ((), {"past_key_values": given.past_key_values}))


def test_objects_of_the_jobs_own_are_left_to_the_plain_call() -> None:
    held = types.SimpleNamespace(h=torch.zeros(2))
    with pytest.raises(Abstain, match="results hold what can't be looked into"):
        map_tensors(torch, (torch.zeros(2), held), lambda each: each)
    with pytest.raises(Abstain, match="arguments hold what can't be looked into"):
        refuse_unseen(torch, ((torch.zeros(2), [held]), {}))
    refuse_unseen(torch, ((torch.zeros(2), [1, None]), {"mode": "train"}))
