"""Settings: what a deployment decides, read from the environment (ASSAY_...); behaviour that may evolve is in HarnessSpec."""

from pathlib import Path

from pydantic import Field, SecretStr
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
    concurrency: int = Field(default=8, gt=0)
    """Episodes at a time with a hosted model."""
    threads: int = Field(default=0, ge=0)
    """Threads of the local model; 0: one per core."""
    log_level: str = "warning"

    @property
    def database(self) -> str:
        return f"sqlite:///{(self.data / 'assay.db').resolve()}"
