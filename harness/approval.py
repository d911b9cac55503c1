"""Approval: a question to a human, bound to the exact action shown, in the shapes of LangChain's HITL; it asks nobody."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self

from jsonschema import Draft202012Validator
from pydantic import JsonValue

from harness.correction import Permission
from harness.errors import ApprovalError, AssayError
from harness.message import Action
from harness.tool import Tool
from harness.value import Value, digest


class Approval(Value):
    """What a human is asked. `hash` binds the answer to this action of this run, arguments included."""

    run: str
    action: Action
    tool: Tool
    reason: str
    expires: datetime
    default: Literal["allow", "deny"]

    @property
    def hash(self) -> str:
        return digest([self.run, self.action.id, self.action.tool, dict(self.action.arguments)])

    def request(self) -> dict[str, Any]:
        """LangChain's HITLRequest, with the binding hash, the expiry and the default beside it."""
        return {
            "action_requests": [{"name": self.action.tool, "args": dict(self.action.arguments), "description": self.reason}],
            "review_configs": [
                {
                    "action_name": self.action.tool,
                    "allowed_decisions": ["approve", "edit", "reject"],
                    "args_schema": dict(self.tool.parameters),
                }
            ],
            "hash": self.hash,
            "expires_at": self.expires.isoformat(),
            "default": self.default,
        }

    def shown(self) -> dict[str, Any]:
        """All of it as JSON: the approval's own fields, and the request beside them."""
        return self.model_dump(mode="json") | self.request()

    @classmethod
    def read(cls, shown: Mapping[str, Any]) -> Self:
        """The approval of what was shown."""
        return cls.model_validate({name: shown[name] for name in cls.model_fields})


class Answered(Value):
    """An answer and when it came: what `Agent.resume` hands on, so that a crash after it cannot let it expire."""

    given: JsonValue
    at: datetime


class Waiting(AssayError):
    """The run waits for a human; `approval` says for what. It goes on with `Agent.resume(thread, answer)`."""

    def __init__(self, thread: str, approval: Approval) -> None:
        super().__init__(f"run {thread} waits until {approval.expires.isoformat()} for a decision on {approval.action.tool}")
        self.thread = thread
        self.approval = approval


def answer(
    approval: Approval,
    decision: Literal["approve", "edit", "reject"],
    *,
    arguments: Mapping[str, JsonValue] | None = None,
    message: str = "",
) -> dict[str, Any]:
    """The answer to an approval, in the form that `Agent.resume` and `Command(resume=...)` take."""
    made: dict[str, Any] = {"type": decision}
    if decision == "edit":
        made["edited_action"] = {"name": approval.action.tool, "args": dict(arguments or {})}
    if decision == "reject":
        made["message"] = message
    return {"hash": approval.hash, "decisions": [made]}


def decided(approval: Approval, given: object, now: datetime) -> tuple[Action, Permission]:
    """The action to execute and whether it may be; after the expiry the default applies, whatever was answered.

    `given` is the answer itself, come `now`, or an Answered with its own time.
    Raises ApprovalError when the answer is for something else, or is none that was offered; then nothing is decided.
    """
    if isinstance(given, Answered):
        now = given.at
        given = given.given
    if now >= approval.expires:
        reason = f"nobody answered by {approval.expires.isoformat()}: the default"
        return approval.action, Permission(decision=approval.default, reason=reason)
    if not isinstance(given, Mapping):
        raise ApprovalError(f"an answer is an object with `hash` and `decisions`; found {type(given).__name__}")
    if given.get("hash") != approval.hash:
        found = str(given.get("hash"))[:12]
        raise ApprovalError(
            f"the answer is for {found!r}, what waits is {approval.hash[:12]!r}: look at what is shown now and answer that"
        )
    decisions = given.get("decisions")
    if not isinstance(decisions, list) or len(decisions) != 1 or not isinstance(decisions[0], Mapping):
        raise ApprovalError("an answer has exactly one decision, for the one action that is shown")
    made = decisions[0]
    match made.get("type"):
        case "approve":
            return approval.action, Permission(decision="allow", reason="approved by a human")
        case "reject":
            return approval.action, Permission(decision="deny", reason=str(made.get("message") or "rejected by a human"))
        case "edit":
            return _edited(approval, made.get("edited_action")), Permission(decision="allow", reason="edited by a human")
    raise ApprovalError(f"decision {made.get('type')!r}: allowed are approve, edit, reject")


def _edited(approval: Approval, edited: object) -> Action:
    if not isinstance(edited, Mapping) or edited.get("name") != approval.action.tool:
        raise ApprovalError(f"an edit changes the arguments of {approval.action.tool}, never the tool; found {edited!r}")
    arguments = edited.get("args")
    error = next(iter(Draft202012Validator(dict(approval.tool.parameters)).iter_errors(arguments)), None)
    if error is not None:
        raise ApprovalError(f"the edited arguments do not fit {approval.action.tool}: {error.message}")
    return approval.action.replace(arguments=arguments)
