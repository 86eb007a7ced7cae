"""Pictures and a page of a family: sampled scenes, edited scenes, a film of the expert."""
