"""The entry points of workers: their command lines."""

import pytest

from kosmos_rag.worker.commands.ingest import main


@pytest.mark.parametrize("pause", ["1e300", "nan", "soon"])
def test_ingest__refuses_a_pause_that_is_no_time(pause: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["folder", "--every", pause])
    assert f"{pause!r} is not a number of seconds" in capsys.readouterr().err
