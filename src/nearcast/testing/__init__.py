"""What tests hold implementations against: plain references, for what is faster here and for plug-ins."""
