"""Questions to a language model at any OpenAI-compatible server; answers are data, never run."""
