"""nearcast delivers every event to whom it concerns, at the priority the receiver's situation calls for."""
