"""What the API answers agrees with the models, and with the document that describes it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.asking import OWN, SENTENCE, answer, ask, client, problem, serving
from explorer.kinds import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import wording

from caesura.analysis.explain import explain
from caesura.analysis.flips import flips
from caesura.errors import InputError
from caesura.explorer.pool import Stopped
from caesura.explorer.server import Explorer
from caesura.inference import Translator

TEXTS = st.text("abcdefgh xäあ\t\u0301😀", max_size=14)  # symbols of the models, and others
MOVABLE = [name for name in KINDS if name != "char"]


def model_of(explorer: Explorer, name: str) -> Translator:
    """The model behind a name."""
    return explorer.shelf.slot(name).current().model


def test_models_say_what_may_be_asked_of_them(explorer: Explorer) -> None:
    reply = client(explorer).get("/api/models").json()
    models = {model["name"]: model for model in reply["models"]}
    assert [*models] == [OWN, *KINDS]
    assert reply["limits"] == {"characters": 500, "texts": 32, "flips": 120}
    assert models["char"]["rules"] == ["own"]
    assert not models["char"]["takes_cuts"]
    assert models["cif"]["kind"] == "bigru ▸ cif ▸ weighted"
    assert models["cif"]["live_rate"] == {"target": 2.0}
    assert models["act"]["live_rate"] is None
    assert [models[name]["target_cuts"] for name in ("cif", "writes")] == [False, True]
    assert [models[name]["sums_to"] is None for name in ("char", "act", "cif")] == [True, False, False]
    assert models[OWN]["examples"]
    assert not any(model["running"] or model["problem"] for model in models.values())


@settings(max_examples=15)
@given(text=TEXTS, name=st.sampled_from([*KINDS]), beam=st.sampled_from([1, 3]))
def test_answers_agree_with_the_translator(explorer: Explorer, text: str, name: str, beam: int) -> None:
    model = model_of(explorer, name)
    [output] = model.process([text], model.searcher(beam))
    reply = answer(explorer, "/segment", model=name, text=text)
    assert reply["pieces"] == model.segment([text])[0]
    assert "".join(reply["symbols"]) == text
    one = answer(explorer, "/explain", model=name, text=text, beam=beam, reference="ab")
    assert one["segmentation"] == {key: reply[key] for key in one["segmentation"]}
    assert one["translation"] == output.best == model.translate([text], beam)[0]
    assert one["version"] == reply["version"]
    assert one["output"]["pieces"] == (output.targets[0].pieces if output.targets else None)
    [scored] = model.score([text], ["ab"])
    if text:
        assert one["log_probability"] == pytest.approx(output.hypotheses[0].log_prob, abs=1e-9)
        assert one["reference"] == {"text": "ab", "log_probability": pytest.approx(scored)}
        rows = len(one["output"]["symbols"]) + one["output"]["finished"]
        assert len(one["attention"]) == rows
        assert all(sum(row) == pytest.approx(1) for row in one["attention"])
        assert {len(row) - len(reply["pieces"]) for row in one["attention"]} <= {0, 1}
    else:
        assert one["reference"]["log_probability"] is None
    [same] = answer(explorer, "/translate", model=name, texts=[text], beam=beam)["translations"]
    assert same["text"] == output.best


def test_attention_is_that_of_the_layer_and_head_that_are_asked_for(explorer: Explorer) -> None:
    reply = {
        model["name"]: model["attention"] for model in client(explorer).get("/api/models").json()["models"]
    }
    assert reply == dict.fromkeys([OWN, *KINDS]) | {"heads": {"layers": 2, "heads": 2, "shown": 1}}
    asked = {"model": "heads", "text": "abcdefgh", "cuts": {"3": 1}, "beam": 1}
    usual = answer(explorer, "/explain", **asked)
    model = model_of(explorer, "heads")
    every = explain(model, "abcdefgh", {3: 1}, beam=1, heads=True).attention
    assert every is not None
    assert every.heads is not None
    assert every.heads.shape == (2, 2, len(usual["attention"]), len(usual["attention"][0]))
    for layer, head in ((1, None), (2, None), (1, 1), (2, 2), (None, 2)):
        one = answer(explorer, "/explain", **asked, layer=layer, head=head)
        expected = every.heads[(layer or 1) - 1]
        expected = expected.mean(0) if head is None else expected[head - 1]
        assert np.allclose(one["attention"], expected, atol=1e-6)
        same = {"milliseconds": usual["milliseconds"], "attention": usual["attention"]}
        assert one | same == usual
    first, second = (answer(explorer, "/explain", **asked, layer=1, head=head) for head in (1, 2))
    assert first["attention"] != second["attention"]
    assert answer(explorer, "/explain", model="heads", text="", layer=2)["attention"] is None


@pytest.mark.parametrize(
    ("name", "which", "field"),
    [
        ("heads", {"layer": 3}, "layer"),
        ("heads", {"layer": 2, "head": 3}, "head"),
        ("cif", {"head": 1}, "head"),
    ],
)
def test_attention_that_is_not_there_is_refused(
    explorer: Explorer, name: str, which: dict[str, int], field: str
) -> None:
    error = ask(explorer, "/explain", 422, model=name, text="abc", **which)
    assert error["field"] == field
    wording(error["message"])


@given(data=st.data(), text=TEXTS, name=st.sampled_from(MOVABLE))
def test_locks_hold_and_the_model_decides_the_rest(
    explorer: Explorer, data: Any, text: str, name: str
) -> None:
    model = model_of(explorer, name)
    locks = data.draw(st.dictionaries(st.integers(1, max(1, len(text) - 1)), st.sampled_from([1, -1])))
    locks = {offset: value for offset, value in locks.items() if offset < len(text)}
    reply = answer(explorer, "/segment", model=name, text=text, cuts=locks)
    assert reply["pieces"] == model.segment([text], [locks or None])[0]
    gaps = {gap["offset"]: gap for gap in reply["gaps"]}
    assert [*gaps] == [*range(1, len(text))]
    assert {at: gap["locked"] for at, gap in gaps.items() if gap["locked"]} == locks
    assert all(gaps[at]["cut"] == (value > 0) for at, value in locks.items())
    bounds = [len("".join(reply["pieces"][:i])) for i in range(1, len(reply["pieces"]))]
    assert bounds == [at for at, gap in gaps.items() if gap["cut"]]


@pytest.mark.parametrize(
    ("rule", "pieces"),
    [
        ({"name": "characters"}, ["a", "b", " ", "c", "d", "e"]),
        ({"name": "words"}, ["ab ", "cde"]),
        ({"name": "every", "k": 4}, ["ab c", "de"]),
        ({"name": "every"}, ["ab c", "de"]),
    ],
)
def test_rules_cut_where_they_say(explorer: Explorer, rule: dict[str, Any], pieces: list[str]) -> None:
    for name in MOVABLE:
        reply = answer(explorer, "/segment", model=name, text="ab cde", rule=rule)
        assert reply["pieces"] == pieces
    reply = answer(explorer, "/segment", model="cif", text="ab cde", rule=rule, cuts={"5": 1, "3": -1})
    bounds = [len("".join(reply["pieces"][:i])) for i in range(1, len(reply["pieces"]))]
    assert 5 in bounds
    assert 3 not in bounds


@pytest.mark.parametrize("rate", [1.0, 1.5, 3.0, 100.0])
def test_a_rate_is_of_its_request_alone(explorer: Explorer, rate: float) -> None:
    before = answer(explorer, "/segment", model=OWN, text=SENTENCE)
    reply = answer(explorer, "/segment", model=OWN, text=SENTENCE, rate=rate)
    assert len(reply["pieces"]) == max(1, round(len(SENTENCE) / rate))
    assert answer(explorer, "/explain", model=OWN, text=SENTENCE, rate=rate)["segmentation"] == {
        key: reply[key] for key in answer(explorer, "/explain", model=OWN, text=SENTENCE)["segmentation"]
    }
    assert answer(explorer, "/segment", model=OWN, text=SENTENCE) == before


def test_flips_are_those_of_the_oracle(explorer: Explorer) -> None:
    for name in MOVABLE:
        reply = answer(explorer, "/flips", model=name, text="abcd efgh", target="abc")
        one = flips(model_of(explorer, name), "abcd efgh", "abc", rounds=0)
        assert reply["offsets"] == [*range(1, 9)]
        assert reply["base"] == pytest.approx(one.hard)
        assert reply["changes"] == pytest.approx(one.changes)
        assert one.pull is not None
        signs = [-1 if cut else 1 for cut in one.cuts]
        promised = [sign * slope for sign, slope in zip(signs, one.pull.gradient, strict=True)]
        assert reply["gradient"] == pytest.approx(promised)
        least = min(reply["changes"])
        assert reply["best"] == (reply["offsets"][reply["changes"].index(least)] if least < -1e-6 else None)


def test_flips_start_from_the_cuts_that_were_asked_for(explorer: Explorer) -> None:
    model, cuts = model_of(explorer, "cif"), {3: 1, 4: -1}
    reply = answer(explorer, "/flips", model="cif", text="abcdefgh", cuts=cuts)
    target = model.process(["abcdefgh"], model.searcher(1), cuts=[cuts])[0].best
    assert reply["target"] == target
    one = flips(model, "abcdefgh", target, rounds=0, cuts=cuts)
    assert reply["base"] == pytest.approx(one.hard)
    flipped = {**{at: 1 if cut else -1 for at, cut in enumerate(one.cuts, 1)}, 3: -1}
    loss = -model.score(["abcdefgh"], [target], [flipped])[0] / (len(target) + 1)
    assert reply["changes"][2] == pytest.approx(loss - one.hard)


def test_several_texts_have_cuts_of_their_own(explorer: Explorer) -> None:
    model, texts = model_of(explorer, "cif"), ["abcd", "efgh", "", "ab"]
    cuts: list[Any] = [None, [2], None, {1: -1}]
    reply = answer(explorer, "/translate", model="cif", texts=texts, cuts=cuts, beam=2)
    outputs = model.process(texts, model.searcher(2), cuts=cuts)
    assert [one["text"] for one in reply["translations"]] == [output.best for output in outputs]
    assert reply["translations"][2]["log_probability"] == 0


def test_halting_sums_end_segments(explorer: Explorer) -> None:
    one = answer(explorer, "/explain", model="act", text="abcdefgh", beam=1)
    assert len(one["halting"]) == 8
    assert answer(explorer, "/explain", model="char", text="abc", beam=1)["halting"] is None


def test_unknown_symbols_are_named_by_offset(explorer: Explorer) -> None:
    reply = ask(explorer, "/segment", model="cif", text="aあb😀")
    assert reply["unknown"] == [1, 3]
    assert reply["segment_length"] == pytest.approx(4 / len(reply["pieces"]))
    assert ask(explorer, "/segment", model="cif", text="")["segment_length"] is None


WRONG = [
    ("/segment", {"model": "none"}, 404, "model"),
    ("/segment", {"text": 7}, 422, "text"),
    ("/segment", {"txt": "a"}, 422, "txt"),
    ("/segment", {"cuts": {"9": 1}}, 422, "cuts"),
    ("/segment", {"cuts": {"0": 1}}, 422, "cuts"),
    ("/segment", {"cuts": {"-1": 1}}, 422, "cuts"),
    ("/segment", {"cuts": {"1": 2}}, 422, "cuts.1"),
    ("/segment", {"cuts": {"one": 1}}, 422, "cuts.one"),
    ("/segment", {"model": "char", "cuts": {"1": 1}}, 422, "cuts"),
    ("/segment", {"model": "char", "rule": {"name": "words"}}, 422, "rule"),
    ("/segment", {"rule": {"name": "entropy"}}, 422, "rule"),
    ("/segment", {"rule": {"name": "none"}}, 422, "rule.name"),
    ("/segment", {"rule": {"name": "every", "k": 0}}, 422, "rule.k"),
    ("/segment", {"rate": 0.5}, 422, "rate"),
    ("/segment", {"rate": math.inf}, 422, "rate"),
    ("/segment", {"model": "act", "rate": 2.0}, 422, "rate"),
    ("/segment", {"text": "x" * 501}, 413, "text"),
    ("/segment", {"text": "\ud800"}, 400, None),
    ("/explain", {"reference": "x" * 501}, 413, "reference"),
    ("/explain", {"beam": 11}, 422, "beam"),
    ("/translate", {"texts": [""] * 33}, 413, "texts"),
    ("/translate", {"texts": ["ab"], "cuts": [[1], [1]]}, 422, "cuts"),
    ("/translate", {"texts": ["ab"], "cuts": [[2]]}, 422, None),
    ("/flips", {"text": ""}, 422, "text"),
    ("/flips", {"text": "a" * 122}, 413, "text"),
    ("/flips", {"model": "char"}, 422, "model"),
    ("/training", {"model": "none"}, 404, "model"),
]


@pytest.mark.parametrize(("path", "change", "status", "field"), WRONG)
def test_what_is_wrong_is_one_sentence(
    explorer: Explorer, path: str, change: dict[str, Any], status: int, field: str | None
) -> None:
    body = {"model": "cif", **({} if path in ("/translate", "/training") else {"text": "abcd"}), **change}
    error = refused(explorer, path, body, status)
    wording(error["message"])
    assert error["field"] == field


def refused(explorer: Explorer, path: str, body: dict[str, Any], status: int) -> dict[str, Any]:
    """The error; a body may be what no JSON library writes by itself."""
    content = json.dumps(body).encode()
    response = client(explorer).post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code == status, response.text
    return problem(response)


def test_long_lines_are_flipped_on_request(explorer: Explorer) -> None:
    reply = answer(explorer, "/flips", model="act", text="ab" * 61, target="a", long=True)
    assert len(reply["changes"]) == 121


@pytest.mark.parametrize("path", ["/segment", "/explain", "/translate", "/flips"])
def test_what_computes_may_be_ended(explorer: Explorer, path: str) -> None:
    def check() -> None:
        raise Stopped

    [question] = [question for question in explorer.questions if question.path == path]
    text = {"texts": ["abcd"]} if path == "/translate" else {"text": "abcd"}
    with pytest.raises(Stopped):
        question.work(question.request.model_validate({"model": "cif", **text}), check)


def test_long_searches_have_threads_of_their_own(explorer: Explorer) -> None:
    questions = {question.path: question for question in explorer.questions}

    def is_long(path: str, **body: Any) -> bool:
        question = questions[path]
        return question.long(question.request.model_validate({"model": "cif", **body}))

    assert not is_long("/explain", text="x" * 250, beam=1)
    assert is_long("/explain", text="x" * 251, beam=1)
    assert not is_long("/explain", text="x" * 50)
    assert is_long("/explain", text="x" * 51)
    assert is_long("/translate", texts=["x" * 26], beam=10)
    assert not is_long("/segment", text="x" * 500)
    assert is_long("/flips", text="x")


def test_the_document_describes_every_path(explorer: Explorer) -> None:
    document = client(explorer).get("/openapi.json").json()
    posted = {question.path for question in explorer.questions}
    assert {path for path, one in document["paths"].items() if "post" in one} == posted
    schemas = document["components"]["schemas"]
    text = str(document)
    for reference in text.split("#/components/schemas/")[1:]:
        assert reference.split("'")[0] in schemas
    assert {*schemas["Model"]["required"]} == {*schemas["Model"]["properties"]}  # every answer has all keys
    assert document["openapi"] == "3.1.0"


def test_the_document_is_made_once(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caesura.explorer.server.document", None)  # is not called any more
    assert client(explorer).get("/openapi.json").json()["paths"]


def test_a_folder_that_is_named_twice_or_missing_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    for wrong in ([folders["cif"], folders["cif"]], [tmp_path / "none"]):
        with pytest.raises(InputError) as caught, serving(*wrong):
            pass
        wording(caught.value, tmp_path)
