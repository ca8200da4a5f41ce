// torch_fl._hot: the hit path of the route as a CPython extension. It knows neither torch's headers nor any chip; each
// type stands in for a Python class or function of the same meaning, which runs where this was not built.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#define MAX_SLOTS 64  // buffers of one plan, arguments of one kernel; more take the Python way

typedef struct {
  PyObject_HEAD
  long long active, peak, made, made_bytes, freed;
} Counters;

typedef struct {
  PyObject_HEAD
  PyObject *device, *handle, *shelf, *counters, *weakrefs;
  long long nbytes;
} Buffer;

extern PyTypeObject CountersType, BufferType, AllocatorType, LockType, CallType, ReplayType, ViewType, RouteType;
extern PyObject *s_buffer, *s_spec, *s_offset, *s_address, *s_bind, *s_plans, *s_run, *s_handler, *s_listener, *s_known;

// A new Buffer: by an Allocator, or by whatever else is called in its place.
PyObject* allocate(PyObject* allocator, PyObject* nbytes);
// Runs a Call; `handles` are borrowed. 0, or -1 with an exception.
int call_now(PyObject* call, PyObject** handles, const Py_ssize_t* offsets, PyObject* values);
