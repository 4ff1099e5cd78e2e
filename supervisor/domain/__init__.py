"""The nouns: frozen values and enums; standard library only, no input or output, no clock."""
