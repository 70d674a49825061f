#pragma once
#include <boost/version.hpp>
