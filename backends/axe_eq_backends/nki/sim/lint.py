"""placeholder"""
def check(text, file, dialect): pass
