"""The ground floor: the nouns, the seams, and the one agent loop."""

import os

# LangGraph reads this when it is first imported: without it a forged checkpoint can run code.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
# litellm would otherwise fetch its price list when it is imported.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
