"""Headers by which a request says who makes it. The front door reads them, the client and peers send them."""

from __future__ import annotations

REQUEST_ID = "X-Request-Id"
"""Id of the request: the client's own if it sends one. It is in the answer, in problems and in the broker's log."""
CLIENT_ID = "Tidelog-Client-Id"
"""How the client names itself."""
TIMEOUT_MS = "Tidelog-Timeout-Ms"
"""How many milliseconds the client waits for the answer, from when the broker has the request's head."""
PRINCIPAL = "Tidelog-Principal"
"""Who makes a forwarded request. A broker reads it from a proved peer only."""
