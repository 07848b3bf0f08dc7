"""Every verb takes a target and an architecture as objects or as they are spelled on the command line."""

import pytest

import infoflow as iflow

SPELLED = "pairwise_max:D=1,d=2,seed=0", "heads=1,1 embed=4"
OBJECTS = iflow.targets.pairwise_max(D=1, d=2, seed=0), iflow.Architecture(heads=(1, 1), embed=(4, 4))
RECIPE = iflow.Recipe(samples=8, validation=4, batch=4, epochs=1)


@pytest.mark.parametrize(
    "verb",
    [
        lambda F, arch: str(iflow.predict(F, arch, T=6)),
        lambda F, arch: str(iflow.plan(F, T=6)),
        lambda F, arch: str(iflow.trace(F, arch, OBJECTS[0].sample(1, 6, seed=0)[0])),
        lambda F, arch: str(iflow.scale(F, arch, [4, 8])),
        lambda F, arch: iflow.build(F, 6, 0.5, arch).header,
        lambda F, arch: iflow.certify(iflow.build(F, 6, 0.5), F, 6, seconds=0.1).bound,
        lambda F, arch: [run.curve for run in iflow.fit(F, arch, T=4, seeds=2, recipe=RECIPE)],
    ],
    ids=["predict", "plan", "trace", "scale", "build", "certify", "fit"],
)
def test_spellings_mean_what_objects_mean(verb):
    assert verb(*SPELLED) == verb(*OBJECTS)


def test_refute_takes_a_spelling():
    net = iflow.build(SPELLED[0], 4, 0.5)
    assert (
        iflow.refute(net, SPELLED[0], 4, seconds=1).to_json().keys()
        == iflow.refute(net, OBJECTS[0], 4, seconds=1).to_json().keys()
    )


def test_a_wrong_spelling_is_one_sentence():
    with pytest.raises(iflow.InfoFlowError, match="nonsense"):
        iflow.predict("nonsense", SPELLED[1], T=4)
    with pytest.raises(iflow.InfoFlowError, match="heds"):
        iflow.predict(SPELLED[0], "heds=1", T=4)
