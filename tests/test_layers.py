import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SECONDS = 100


def run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_signals_flow_one_way_between_the_rooms() -> None:
    run(PROGRAMS / "lint-imports", "--no-cache")


def test_the_workflow_sandbox_finds_nothing_to_execute_in_the_rooms_themselves() -> None:
    for room in ("workflows", "activities"):
        assert (ROOT / room / "__init__.py").read_text(encoding="utf-8") == ""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (made,) = folder.glob("*.whl")
    return made


def test_a_wheel_installs_in_an_empty_environment_and_answers(wheel: Path, tmp_path: Path) -> None:
    """Dependencies come by a .pth file from here: what is tested is that the wheel brings all that is ours."""
    python = tmp_path / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    run(PROGRAMS / "uv", "pip", "install", "--offline", "--no-deps", "--quiet", "--python", python, wheel)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    ours = next(Path(place) for place in sys.path if place.endswith("site-packages"))
    (site / "dependencies.pth").write_text(f"{ours}\n", encoding="utf-8")
    assert "diagnose" in run(tmp_path / "bin" / "sickbay", "--help")
    assert run(python, "-P", "-c", "import sickbay; print(sickbay.__file__)").startswith(str(tmp_path))
    run(python, "-P", "-c", "from sickbay.policy.file import default_policy; default_policy()")
    run(python, "-P", "-c", "from sickbay.catalogue import lookup; assert lookup('xid-79').known")


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_lock_names_no_place_to_get_packages_from_and_a_hash_for_each(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    pinned = [line for line in text.splitlines() if "==" in line and not line.startswith(" ")]
    assert pinned
    assert all(line.endswith("\\") for line in pinned)


def test_the_locks_hold_every_direct_dependency() -> None:
    def names(requirements: list[str]) -> set[str]:
        cut = (entry.replace("[", " ").replace(">", " ").replace("<", " ").replace("=", " ") for entry in requirements)
        return {entry.split()[0].lower().replace(".", "-").replace("_", "-") for entry in cut}

    def locked(lock: str) -> set[str]:
        lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
        return {line.split("==")[0].split("[")[0] for line in lines if "==" in line and not line.startswith(" ")}

    project = PROJECT["project"]
    assert names(project["dependencies"]) <= locked("requirements.lock")
    wanted = [*project["optional-dependencies"]["demo"], *PROJECT["dependency-groups"]["dev"]]
    assert names(wanted) <= locked("requirements-dev.lock")
