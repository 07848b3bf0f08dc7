from infoflow.certificates.certificate import Certificate, Certified, Claim, asked_of, error_claim, stated_limit

__all__ = ["Certificate", "Certified", "Claim", "asked_of", "error_claim", "stated_limit"]
