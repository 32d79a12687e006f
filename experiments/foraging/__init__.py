"""The simulations of Tsetsos & Hadjiefthymiades, "An innovative architecture for context foraging" (§4)."""
