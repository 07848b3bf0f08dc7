from infoflow.certificates.certificate import Certificate

__all__ = ["Certificate"]
