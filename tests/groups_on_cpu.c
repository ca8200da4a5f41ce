// Fibers for kernels that are compiled as C++ by tests/cupy_double.py.
#include "../native/groups_c.h"
int group_item(void) { return group_.current; }
void group_barrier(void) { fiber_barrier(); }
void group_run(int size, void (*body)(void**, const long*, int), void** args, const long* place) {
  run_group(size, body, args, place);
}
