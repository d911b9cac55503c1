"""Settings: what a deployment decides, read from the environment (ASSAY_...); behaviour that may evolve is in HarnessSpec."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="ASSAY_", frozen=True)

    data: Path = Path(".assay")
    """Directory of the database and the index; one lineage per agent lives in it."""
    models: Path = Field(default_factory=lambda: Path.home() / ".cache" / "assay" / "models")
    """Where the embedded model is converted to, once per machine."""
    agent: str = "main"
    model: str = "local/smollm2-135m-instruct"
    """Model of a new lineage."""
    base_url: str = ""
    """Address of an OpenAI-compatible server; empty: the provider's own."""
    api_key: SecretStr = SecretStr("")
    """Empty: the provider's usual environment variable."""
    price: str = ""
    """IN/OUT, US dollars per million prompt and completion tokens of a hosted model; empty: what litellm's list says."""
    concurrency: int = Field(default=8, gt=0)
    """Episodes at a time with a hosted model."""
    threads: int = Field(default=0, ge=0)
    """Threads of the local model; 0: one per core."""
    log_level: str = "warning"

    @field_validator("price")
    @classmethod
    def _priced(cls, price: str) -> str:
        parts = price.split("/")
        if price and (len(parts) != 2 or not all(part.replace(".", "", 1).isdecimal() for part in parts)):
            raise ValueError("allowed is IN/OUT, US dollars per million prompt and completion tokens, such as 0.15/0.60")
        return price

    @property
    def prices(self) -> tuple[float, float] | None:
        if not self.price:
            return None
        prompt, completion = self.price.split("/")
        return float(prompt), float(completion)

    @property
    def database(self) -> str:
        return f"sqlite:///{(self.data / 'assay.db').resolve()}"
