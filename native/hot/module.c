// The module torch_fl._hot: its types, and the names that it looks up.
#include "hot.h"

PyObject *s_buffer, *s_spec, *s_offset, *s_address, *s_bind, *s_plans, *s_run, *s_handler, *s_listener, *s_known, *s_pointer,
    *s_streams, *s_last, *s_waiting;

int init_replay(void);

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "torch_fl._hot", "The hit path of the route, compiled.", -1};

PyMODINIT_FUNC PyInit__hot(void) {
  const struct {
    PyObject** name;
    const char* text;
  } names[] = {{&s_buffer, "_buffer"},   {&s_spec, "_spec"},   {&s_offset, "_offset"},     {&s_address, "address"},
               {&s_bind, "bind"},        {&s_plans, "plans"},  {&s_run, "run"},            {&s_handler, "handler"},
               {&s_listener, "listener"}, {&s_known, "_known"},
               {&s_pointer, "pointer"},   {&s_streams, "streams"}, {&s_last, "last"},      {&s_waiting, "waiting"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (!(*names[i].name = PyUnicode_InternFromString(names[i].text))) return NULL;
  const struct {
    const char* name;
    PyTypeObject* type;
  } types[] = {{"Counters", &CountersType}, {"Buffer", &BufferType}, {"Allocator", &AllocatorType}, {"Lock", &LockType}, {"Call", &CallType},
               {"Enqueue", &EnqueueType},
               {"Replay", &ReplayType},     {"View", &ViewType},     {"Route", &RouteType}};
  PyObject* module = init_replay() ? NULL : PyModule_Create(&definition);
  for (size_t i = 0; module && i < sizeof types / sizeof *types; ++i)
    if (PyType_Ready(types[i].type) || PyModule_AddObjectRef(module, types[i].name, (PyObject*)types[i].type))
      Py_CLEAR(module);
  if (module && PyModule_AddIntMacro(module, MAX_SLOTS)) Py_CLEAR(module);
  return module;
}
