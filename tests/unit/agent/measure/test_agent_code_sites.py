"""Places that an edit would speed up are found in the bytecode of running code, and only there."""

import dis
from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

import pytest

from autobrrr.agent.measure import code_sites
from autobrrr.agent.measure.code_sites import CallPaths, Stacks, attention_in, model_calls, sites_on

# The functions below are read, never called.


def reads_back_each_step(loader, model, optimizer):  # type: ignore[no-untyped-def]
    setup = model.norm().item()
    for x in loader:
        loss = model(x)
        loss.backward()
        optimizer.step()
        total = loss.item()
    return setup, total


def reads_back_now_and_then(loader, model, optimizer):  # type: ignore[no-untyped-def]
    for i, x in enumerate(loader):
        loss = model(x)
        loss.backward()
        optimizer.step()
        if i % 100 == 0:
            print(loss.item())


def copies_and_waits(loader, model, device):  # type: ignore[no-untyped-def]
    model = model.to(device)
    for x in loader:
        model(x.to(device))


def copies_meanwhile(loader, model, device):  # type: ignore[no-untyped-def]
    for x in loader:
        model(x.to(device, non_blocking=True))


def updates_by_hand(parameters, lr):  # type: ignore[no-untyped-def]
    for p in parameters:
        p.data.add_(p.grad, alpha=-lr)


def averages_by_hand(average, parameters):  # type: ignore[no-untyped-def]
    for mean, p in zip(average, parameters, strict=True):
        mean.mul_(0.99).add_(p, alpha=0.01)


def recurs(alpha, emissions, transitions):  # type: ignore[no-untyped-def]
    for t in range(1, emissions.shape[1]):
        alpha = (alpha.unsqueeze(2) + transitions).logsumexp(1) + emissions[:, t]
    return alpha


def passes_on(layers, x):  # type: ignore[no-untyped-def]
    for layer in layers:
        x = layer.forward(x)
    return x


def sums_pairs(boxes, overlap):  # type: ignore[no-untyped-def]
    total = 0.0
    for box in boxes:
        total += overlap(box, boxes[0]).item()
    return total


def has_many_heads(heads, x):  # type: ignore[no-untyped-def]
    return torch.cat([head.forward(x) for head in heads])  # type: ignore[name-defined]  # noqa: F821


def has_two_losses(loader, model, optimizer):  # type: ignore[no-untyped-def]
    for x in loader:
        first, second = model(x)
        first.backward(retain_graph=True)
        second.backward()
        optimizer.step()


def trains_two(loss, one, other):  # type: ignore[no-untyped-def]
    loss.backward(retain_graph=True)
    one.step()
    loss.flipped.backward()
    other.step()


def begins_anew(loader, other, model, optimizer):  # type: ignore[no-untyped-def]
    for x in loader:
        model(x, next(iter(other)), iter(x))
        optimizer.step()


def goes_back_for_each(losses, optimizer):  # type: ignore[no-untyped-def]
    for loss in losses:
        loss.backward(retain_graph=True)
    optimizer.step()


def accumulates(batches, model):  # type: ignore[no-untyped-def]
    for x in batches:
        model.loss(x).view(1)
        model.last.backward(retain_graph=True)


def keeps_each_gradient(losses, model):  # type: ignore[no-untyped-def]
    for loss in losses:
        loss.backward(retain_graph=True)
        yield model.weight.grad


def rolls_out(policy, seen):  # type: ignore[no-untyped-def]
    for _ in range(20):
        seen = policy(seen)
    return seen


def attends_by_hand(self, q, k, v):  # type: ignore[no-untyped-def]
    scores = q @ k.transpose(-1, -2) / 8
    return scores.softmax(dim=-1) @ v


def attends_with_torch(self, q, k, v):  # type: ignore[no-untyped-def]
    return self.functional.scaled_dot_product_attention(q, k, v), q.softmax(-1) @ k @ v


def classifies(self, x):  # type: ignore[no-untyped-def]
    return (x @ self.weight).softmax(dim=-1)


def skips_the_exchange(batches, model):  # type: ignore[no-untyped-def]
    for batch in batches:
        with model.no_sync():
            model(batch).backward()


def standing_in(function: Callable[..., object], attribute: str, samples: int = 7, at: int = -1) -> Stacks:
    """Samples of a thread that stood where the function takes this attribute, by default the last time."""
    assert isinstance(function, FunctionType)
    offsets = [one.offset for one in dis.get_instructions(function.__code__) if one.argval == attribute]
    return Counter({(function.__code__, offsets[at]): samples})


def found(stacks: Stacks) -> dict[str, tuple[str, object]]:
    return {
        str(site["what"]): (str(site["where"]).partition(" ")[2], site["samples"])
        for site in sites_on(stacks, (), stacks)
    }


def line(function: Callable[..., object], below: int) -> str:
    assert isinstance(function, FunctionType)
    return f"test_agent_code_sites.py:{function.__code__.co_firstlineno + below} {function.__name__}"


def test_a_loop_that_goes_back_through_one_graph_is_named_where_it_does_not_train() -> None:
    assert found(standing_in(goes_back_for_each, "backward"))["repeats backward"] == ("goes_back_for_each", 7)
    for others in (has_two_losses, keeps_each_gradient):
        assert "repeats backward" not in found(standing_in(others, "backward"))
    first = found(standing_in(has_two_losses, "backward", at=0))
    assert first["repeats backward"] == ("has_two_losses", 7)
    assert "repeats backward" not in found(standing_in(trains_two, "backward", at=0))
    both = standing_in(accumulates, "loss", 4) + standing_in(accumulates, "backward", 8)
    assert found(both)["repeats backward"] == ("accumulates", 0)


def counts_pairs(target: Any, guess: Any, counts: Any, many: int) -> None:
    for one in range(many):
        for other in range(many):
            counts[one, other] += ((target == one) & (guess == other)).sum()


def test_classes_that_are_counted_one_pair_after_the_other_are_named() -> None:
    assert found(standing_in(counts_pairs, "sum"))["masks"] == ("counts_pairs", 7)


def test_an_iterator_for_one_batch_is_named() -> None:
    assert found(standing_in(begins_anew, "next"))["begins anew"] == ("begins_anew", 7)
    assert "begins anew" not in found(standing_in(begins_anew, "step"))


def test_a_loop_that_calls_the_model_is_named_where_it_does_not_train() -> None:
    (rollout,), (trains,) = standing_in(rolls_out, "policy"), standing_in(reads_back_each_step, "model")
    paths: CallPaths = Counter({("forward", (rollout, trains)): 9, ("backward", (trains,)): 3})
    paths["forward", ((rollout[0], rollout[1] + 2), trains)] = 1
    with mock.patch.object(code_sites, "Code", wraps=code_sites.Code) as read:
        (site,) = model_calls(paths, ())
    assert site == {"what": "calls the model", "where": line(rolls_out, 2), "samples": 10}
    assert read.call_count == 1  # training waits meanwhile
    assert list(model_calls(Counter({("forward", (trains,)): 9, ("backward", (trains,)): 3}), ())) == []


def test_a_number_read_back_in_every_step_is_named_with_its_line_and_samples() -> None:
    sites = sites_on(standing_in(reads_back_each_step, "item"), (), Counter())
    assert [site for site in sites if site["what"] == "reads back"] == [
        {"what": "reads back", "where": line(reads_back_each_step, 6), "samples": 7}
    ]


def test_what_stands_before_the_loop_or_behind_a_condition_is_no_site() -> None:
    assert "reads back" not in found(standing_in(reads_back_now_and_then, "backward"))
    places = [site["where"] for site in sites_on(standing_in(copies_and_waits, "to"), (), Counter())]
    assert places == [line(copies_and_waits, 3)]
    assert found(standing_in(copies_meanwhile, "to")) == {}


@pytest.mark.parametrize("function", [updates_by_hand, averages_by_hand])
def test_a_loop_over_tensors_is_named_by_its_first_line(function: Callable[..., object]) -> None:
    stacks = standing_in(function, "add_")
    sites = sites_on(stacks, (), stacks)
    assert {"what": "updates", "where": line(function, 1), "samples": 7} in sites


def test_a_loop_of_operators_is_named_where_it_calls_no_python() -> None:
    stacks = standing_in(recurs, "logsumexp")
    site = {"what": "loops", "where": line(recurs, 1), "samples": 7}
    assert sites_on(stacks, (), stacks) == [site]
    for function, attribute in ((passes_on, "forward"), (sums_pairs, "item")):
        calls = standing_in(function, attribute)  # a function of the script's, or a layer
        for calls_none, what in ((calls, "loops"), (Counter(), "layers")):
            sites = sites_on(calls, (), calls_none)
            assert [site["what"] for site in sites if site["what"] in ("loops", "layers")] == [what]
        trains = sites_on(calls, (), calls, list(calls))
        assert {site["what"] for site in trains} <= {"reads back"}
    made = has_many_heads.__code__.co_consts  # a list of what needs no other item
    code = next((one for one in made if isinstance(one, CodeType)), has_many_heads.__code__)
    at = next(one.offset for one in dis.get_instructions(code) if one.argval == "forward")
    heads = sites_on(Counter({(code, at): 7}), (), Counter())
    assert [site["what"] for site in heads] == ["layers by item"]
    for function, name in ((updates_by_hand, "add_"), (has_two_losses, "step"), (copies_and_waits, "to")):
        assert "loops" not in found(standing_in(function, name))
    assert "updates" not in found(standing_in(has_two_losses, "step"))


def test_attention_by_hand_is_a_softmax_between_products() -> None:
    def codes(*functions: object) -> list[CodeType]:
        return [function.__code__ for function in functions if isinstance(function, FunctionType)]

    assert attention_in(codes(attends_by_hand, attends_with_torch, classifies)) == [line(attends_by_hand, 2)]


def test_a_gate_of_synchronisation_is_seen_in_the_code_of_libraries_too() -> None:
    stacks = standing_in(skips_the_exchange, "backward")
    code, _ = next(iter(stacks))
    assert "synchronises by hand" in found(stacks)
    assert [site["what"] for site in sites_on(stacks, (code.co_filename,), stacks)] == [
        "synchronises by hand"
    ]
