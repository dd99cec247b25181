"""Language models over the network, behind the port `LanguageModel`."""
