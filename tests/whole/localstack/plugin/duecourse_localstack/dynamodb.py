"""Points LocalStack's DynamoDB at a jar that was fetched before, for it would fetch that and a Java runtime itself."""

import os
from typing import Any

from localstack.runtime import hooks

JAR = "DUECOURSE_DYNAMODB_JAR"


@hooks.on_infra_start(priority=1000)
def run_the_jar_that_is_here() -> None:
    """Start DynamoDB Local by the `java` on PATH from the folder that the variable names."""
    from localstack.services.dynamodb import server
    from localstack.utils.run import ShellCommandThread

    folder = os.environ[JAR]

    def start(self: Any) -> ShellCommandThread:
        command = ["java", f"-Xmx{self.heap_size}", f"-Djava.library.path={folder}/DynamoDBLocal_lib"]
        command += ["-jar", f"{folder}/DynamoDBLocal.jar", "-port", str(self.port), "-inMemory"]
        thread = ShellCommandThread(
            command, strip_color=True, name="dynamodb-local", env_vars={"DDB_LOCAL_TELEMETRY": "0"}
        )
        server.TMP_THREADS.append(thread)
        thread.start()
        return thread

    server.DynamodbServer.do_start_thread = start
