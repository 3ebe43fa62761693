import pytest

from deepex.sync.spec import SyncSpec

TEXTS = [
    "allreduce",
    "allreduce,bucket=0.25+powersgd:4",
    "local:epoch,outer=nesterov,rate=0.5+bf16",
    "hierarchical(allreduce,bucket=1+bf16,local:8,outer=nesterov)+topk:0.01",
    "hybrid:2,servers=2,every=4",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_parts_of_a_text_put_together_are_the_text(text: str) -> None:
    assert SyncSpec.parse(text).text == text
