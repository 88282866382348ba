// The module's side of module.h: before the definition of an object that it exports. The name
// begins with cuvil_, because cmake/module.map lets nothing else out.
#pragma once

#define CUVIL_MODULE_EXPORT extern "C" __attribute__((visibility("default")))
