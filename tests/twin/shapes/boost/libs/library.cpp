#include <boost/version.hpp>
/* A library of the twin: it knows what it is called and of which Boost it is. */
extern "C" const char *SYMBOL(void) { return LIBRARY " " BOOST_LIB_VERSION; }
