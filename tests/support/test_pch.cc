// Nothing: the executable of this file makes the precompiled header that the tests share.
