// Holds the precompiled headers that every target shares; see cuvil_pch in Cuvil.cmake.
