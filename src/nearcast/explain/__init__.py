"""Why a client got an event, or did not; why a situation holds, or does not."""
