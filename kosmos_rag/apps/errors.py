"""The errors of the HTTP service, which its client raises too.

ServiceError
├── NotAuthenticated      no token or key came with it, or none that is valid
├── NotPermitted          the caller lacks the scope that it needs
├── PayloadTooLarge       its body is larger than the service takes
├── TooManyRequests       the tenant or the subject has used up its rate
├── Overloaded            the service is at capacity, or about to stop
├── TimedOut              it took longer than it may
├── SignInUnavailable     the identity provider of the console does not answer
└── ServiceUnreachable    to its client: nothing answers at the address, or another program
"""

from kosmos_rag.core.errors import ServiceError


class NotAuthenticated(ServiceError):
    """The request has no valid token or key.

    The message does not name it.
    """


class NotPermitted(ServiceError):
    """The caller lacks the scope that the request needs."""


class PayloadTooLarge(ServiceError):
    """The request's body is larger than the service takes."""


class TooManyRequests(ServiceError):
    """The tenant or subject has exceeded its rate limit.

    After `retry_after_s` a request may succeed.
    """

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class Overloaded(ServiceError):
    """The service is at capacity or about to stop."""


class TimedOut(ServiceError):
    """The request, or its body, took longer than it may."""


class SignInUnavailable(ServiceError):
    """The identity provider does not answer, or not as one."""


class ServiceUnreachable(ServiceError):
    """A client got no response, an incomplete one, or a malformed one."""
