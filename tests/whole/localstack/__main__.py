"""`make localstack`: a LocalStack in host mode on a free port, the tests of `deployed` against it, and its end."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duecourse_local.harness.addresses import LOOPBACK, free_port

ROOT = Path(__file__).parents[3]
VENV = ROOT / ".venv-localstack"
SERVICES = "sqs,sns,ses,dynamodb,events,lambda,logs,cloudformation,iam,sts,s3,cloudwatch,kms,ssm,secretsmanager"
DEPLOYED = ("tests/whole/test_deployed.py", "tests/whole/test_project_deployed.py")
READY_S, GRACE_S = 90, 15


def settings(port: int, folder: str) -> dict[str, str]:
    """LocalStack's own variables: one address, nothing fetched, nothing told, our executor and the jar that is here."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "TMPDIR": folder,
        "FILESYSTEM_ROOT": folder,
        "OVERRIDE_IN_DOCKER": "0",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DNS_ADDRESS": "0",
        "DISABLE_EVENTS": "1",
        "EAGER_SERVICE_LOADING": "1",
        "GATEWAY_LISTEN": f"{LOOPBACK}:{port}",
        "SQS_ENDPOINT_STRATEGY": "path",
        "SERVICES": SERVICES,
        "LAMBDA_RUNTIME_EXECUTOR": "process",
        "DUECOURSE_DYNAMODB_JAR": str(VENV / "dynamodb"),
    }


@contextmanager
def localstack(log: Path) -> Iterator[str]:
    """The URL of a running LocalStack; its output goes to `log`. Raises RuntimeError where it does not start."""
    port = free_port(0, "")
    with tempfile.TemporaryDirectory(prefix="duecourse-localstack-") as folder:
        process = subprocess.Popen(
            [VENV / "bin/python", "-m", "localstack.runtime.main"],
            env=settings(port, folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        ready = threading.Event()
        reading = threading.Thread(target=_read, args=(process, log, ready))
        reading.start()
        try:
            if not ready.wait(READY_S) or process.poll() is not None:
                raise RuntimeError(f"LocalStack is not ready after {READY_S} s: see {log}")
            yield f"http://{LOOPBACK}:{port}"
        finally:
            _stop(process)
            reading.join()


def _read(process: "subprocess.Popen[str]", log: Path, ready: threading.Event) -> None:
    assert process.stdout
    with log.open("w") as out:
        for line in process.stdout:
            out.write(line)
            out.flush()
            if line.startswith("Ready."):
                ready.set()
    ready.set()  # it has ended: nobody is to wait for it


def _stop(process: "subprocess.Popen[str]") -> None:
    """Ask it to end; with all its children at once where it does not."""
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    """Run the tests of `deployed`, or the files that are named; answers pytest's exit code."""
    log = ROOT / ".aws-sam/localstack.log"
    with localstack(log) as url:
        print(f"localstack: ready at {url}, with an executor of ours: functions run in processes; log in {log}")
        command = [sys.executable, "-m", "pytest", "-m", "deployed", "-rs", *(sys.argv[1:] or DEPLOYED)]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, "AWS_ENDPOINT_URL": url}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
