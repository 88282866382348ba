// What module_test loads.
#include "base/module_export.h"

CUVIL_MODULE_EXPORT const int cuvil_answer = 42;
