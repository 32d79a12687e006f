"""A bushfire afternoon in a made-up valley of New South Wales, simulated from a seed: the demo's story.

One o'clock, hot, a strong westerly. *Cullens Ridge* burns towards the village of Cullens Gap and becomes an Emergency
Warning; crews attack, residents leave. More fires start. The radio tower burns: links turn slow, then dead. At ten past
three the southerly change turns the fires, crews withdraw, *Paddock Road* runs for Myall Flat; the incident controller
is cut off, and the commander of sector north takes over. Links return, and what waited arrives, the most urgent first;
as the wind calms down, the fires are brought under control.
"""

from nearcast.demo.bushfire.scenario import Scenario, StoryStep

__all__ = ["Scenario", "StoryStep"]
