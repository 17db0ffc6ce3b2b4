"""`/queues`: look at them, set them, replay what is dead in one."""

from aws_lambda_powertools.event_handler.router import APIGatewayHttpRouter

from duecourse.errors import QueueNotFound
from duecourse.routes.parts import QueueInPath, rejects
from duecourse.routes.request import app, tenant
from duecourse.wire.http import queues

router = APIGatewayHttpRouter()  # type: ignore[no-untyped-call]


@router.get("/queues")
@rejects()
def list_queues() -> queues.QueuesAnswer:
    """Show all queues."""
    return {"queues": [queues.show_queue(queue) for queue in app().queues.every()]}


@router.get("/queues/<queue>")
@rejects(QueueNotFound)
def get_queue(queue: QueueInPath) -> queues.QueueAnswer:
    """Show a queue."""
    return {"queue": queues.show_queue(app().queues.get(queue))}


@router.patch("/queues/<queue>")
@rejects()
def set_queue(queue: QueueInPath, body: queues.SetQueue) -> queues.QueueAnswer:
    """Change the settings of a queue, which need not have a task yet."""
    return {"queue": queues.show_queue(app().queues.configure(queue, body.changes()))}


@router.post("/queues/<queue>/dead/replay")
@rejects()
def replay_dead(queue: QueueInPath, body: queues.ReplayDead) -> queues.ReplayedAnswer:
    """Replay the dead tasks of a queue, oldest first; a dry run only lists them."""
    return queues.show_replayed(app().tasks.replay_dead(queue, body.replay(), tenant()), dry_run=body.dry_run)
