"""What the agent imports a job has already: nothing is looked for in the job's own folders."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import autobrrr
from autobrrr.agent.phases import sampled_step

AGENT = Path(autobrrr.__file__).resolve().parent / "agent"


@pytest.mark.integration
def test_all_that_the_agent_imports_a_job_has_already() -> None:
    names = set()
    for file in AGENT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module)
    wanted = sorted(each for each in names if each.partition(".")[0] in sys.stdlib_module_names)
    assert "gc" in wanted
    program = (
        "import sys, torch\ntorch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)\n"
        f"print([each for each in {wanted} if each not in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", "an import of these runs a file of that name beside the script"


def test_faults_are_counted_as_they_come() -> None:
    before = sampled_step.minor_faults()
    bytearray(64 << 20)
    assert sampled_step.minor_faults() > before
