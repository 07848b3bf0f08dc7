from infoflow.certificates.certificate import Certificate, Claim, asked_of, error_claim, stated_limit

__all__ = ["Certificate", "Claim", "asked_of", "error_claim", "stated_limit"]
