"""How much covering and merging save: the setting of Tarkoma's figure 1 (Channels §3)."""
