/* A library that is only there to be found and loaded. */
#define JOIN(a, b) a##b
#define SYMBOL(name) JOIN(name, GetTwinName)
#define TEXT(name) #name
#define SAY(name) TEXT(name)

const char *SYMBOL(NAME)(void) { return SAY(NAME); }
