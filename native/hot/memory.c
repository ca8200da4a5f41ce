// Buffers, their counters, and allocation from shelves of free blocks (torch_fl/runtime/buffers.py says what each means).
#include "hot.h"

static PyMemberDef counters_members[] = {
    {"active", T_LONGLONG, offsetof(Counters, active), 0, NULL},
    {"peak", T_LONGLONG, offsetof(Counters, peak), 0, NULL},
    {"made", T_LONGLONG, offsetof(Counters, made), 0, NULL},
    {"made_bytes", T_LONGLONG, offsetof(Counters, made_bytes), 0, NULL},
    {"freed", T_LONGLONG, offsetof(Counters, freed), 0, NULL},
    {NULL}};

PyTypeObject CountersType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Counters",
    .tp_basicsize = sizeof(Counters),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_members = counters_members,
    .tp_new = PyType_GenericNew,
};

static PyObject* new_buffer(PyObject* device, PyObject* handle, long long nbytes, PyObject* shelf, PyObject* counters) {
  Buffer* self = PyObject_GC_New(Buffer, &BufferType);
  if (!self) return NULL;
  self->device = Py_NewRef(device);
  self->handle = Py_NewRef(handle);
  self->shelf = Py_NewRef(shelf);
  self->counters = Py_NewRef(counters);
  self->weakrefs = NULL;
  self->nbytes = nbytes;
  Counters* c = (Counters*)counters;
  c->made += 1;
  c->made_bytes += nbytes;
  c->active += nbytes;
  if (c->active > c->peak) c->peak = c->active;
  PyObject_GC_Track(self);
  return (PyObject*)self;
}

static PyObject* buffer_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static char* names[] = {"device", "handle", "nbytes", "shelf", "counters", NULL};
  PyObject *device, *handle, *shelf, *counters;
  long long nbytes;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOLO!O!", names, &device, &handle, &nbytes, &PyList_Type, &shelf,
                                   &CountersType, &counters))
    return NULL;
  return new_buffer(device, handle, nbytes, shelf, counters);
}

static void buffer_dealloc(PyObject* object) {
  Buffer* self = (Buffer*)object;
  PyObject_GC_UnTrack(object);
  if (self->weakrefs) PyObject_ClearWeakRefs(object);
  Counters* c = (Counters*)self->counters;
  c->active -= self->nbytes;
  c->freed += 1;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (PyList_Append(self->shelf, self->handle)) PyErr_WriteUnraisable(NULL);
  PyErr_Restore(type, value, traceback);
  Py_DECREF(self->handle);
  Py_DECREF(self->shelf);
  Py_DECREF(self->counters);
  Py_DECREF(self->device);
  PyObject_GC_Del(object);
}

// Nothing to visit: a collector that finds the handle in garbage would clear it, and it goes back to its shelf. Buffers
// are tracked all the same, so that gc.get_objects() lists them.
static int buffer_traverse(PyObject* object, visitproc visit, void* arg) { return 0; }

#define EXCHANGE(T, a, b) do { T kept = (a); (a) = (b); (b) = kept; } while (0)

static PyObject* buffer_swap(PyObject* object, PyObject* other) {
  if (!Py_IS_TYPE(other, &BufferType)) return PyErr_SetString(PyExc_TypeError, "swap takes another Buffer"), NULL;
  Buffer *a = (Buffer*)object, *b = (Buffer*)other;
  EXCHANGE(PyObject*, a->handle, b->handle);
  EXCHANGE(PyObject*, a->shelf, b->shelf);
  EXCHANGE(long long, a->nbytes, b->nbytes);
  Py_RETURN_NONE;
}

static PyMethodDef buffer_methods[] = {{"swap", buffer_swap, METH_O, NULL}, {NULL}};

static PyMemberDef buffer_members[] = {
    {"device", T_OBJECT_EX, offsetof(Buffer, device), READONLY, NULL},
    {"handle", T_OBJECT_EX, offsetof(Buffer, handle), READONLY, NULL},
    {"shelf", T_OBJECT_EX, offsetof(Buffer, shelf), READONLY, NULL},
    {"nbytes", T_LONGLONG, offsetof(Buffer, nbytes), READONLY, NULL},
    {NULL}};

PyTypeObject BufferType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Buffer",
    .tp_doc = "Raw device memory. Views of one allocation share the Buffer; it is freed with the last of them.",
    .tp_basicsize = sizeof(Buffer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_weaklistoffset = offsetof(Buffer, weakrefs),
    .tp_members = buffer_members,
    .tp_methods = buffer_methods,
    .tp_traverse = buffer_traverse,
    .tp_new = buffer_new,
    .tp_dealloc = buffer_dealloc,
};

// -- allocation ----------------------------------------------------------------------------------------------------
typedef struct {
  PyObject_HEAD
  PyObject *device, *counters, *by_request, *slow;
  char watched;
  vectorcallfunc vectorcall;
} Allocator;

PyObject* allocate(PyObject* object, PyObject* nbytes) {
  if (!Py_IS_TYPE(object, &AllocatorType)) return PyObject_CallOneArg(object, nbytes);
  Allocator* self = (Allocator*)object;
  if (!self->watched) {
    PyObject* shelf = PyDict_GetItemWithError(self->by_request, nbytes);
    if (!shelf && PyErr_Occurred()) return NULL;
    Py_ssize_t n = shelf ? PyList_GET_SIZE(shelf) : 0;
    if (n) {
      PyObject* handle = Py_NewRef(PyList_GET_ITEM(shelf, n - 1));
      PyObject* made = NULL;
      if (!PyList_SetSlice(shelf, n - 1, n, NULL))
        made = new_buffer(self->device, handle, PyLong_AsLongLong(nbytes), shelf, self->counters);
      Py_DECREF(handle);
      return made;
    }
  }
  return PyObject_CallOneArg(self->slow, nbytes);
}

static PyObject* allocator_call(PyObject* self, PyObject* const* args, size_t n, PyObject* names) {
  if (PyVectorcall_NARGS(n) != 1 || names) {
    PyErr_SetString(PyExc_TypeError, "allocate takes one argument, nbytes");
    return NULL;
  }
  return allocate(self, args[0]);
}

static PyObject* allocator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *device, *counters, *by_request, *slow;
  if (!PyArg_ParseTuple(args, "OO!O!O", &device, &CountersType, &counters, &PyDict_Type, &by_request, &slow)) return NULL;
  Allocator* self = (Allocator*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->device = Py_NewRef(device);
  self->counters = Py_NewRef(counters);
  self->by_request = Py_NewRef(by_request);
  self->slow = Py_NewRef(slow);
  self->vectorcall = allocator_call;
  return (PyObject*)self;
}

static int allocator_traverse(PyObject* object, visitproc visit, void* arg) {
  Allocator* self = (Allocator*)object;
  Py_VISIT(self->device);
  Py_VISIT(self->by_request);
  Py_VISIT(self->slow);
  return 0;
}

static int allocator_clear(PyObject* object) {
  Allocator* self = (Allocator*)object;
  Py_CLEAR(self->device);
  Py_CLEAR(self->counters);
  Py_CLEAR(self->by_request);
  Py_CLEAR(self->slow);
  return 0;
}

static void allocator_dealloc(PyObject* object) {
  PyObject_GC_UnTrack(object);
  allocator_clear(object);
  Py_TYPE(object)->tp_free(object);
}

static PyMemberDef allocator_members[] = {{"watched", T_BOOL, offsetof(Allocator, watched), 0, NULL}, {NULL}};

PyTypeObject AllocatorType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Allocator",
    .tp_basicsize = sizeof(Allocator),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Allocator, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_members = allocator_members,
    .tp_new = allocator_new,
    .tp_traverse = allocator_traverse,
    .tp_clear = allocator_clear,
    .tp_dealloc = allocator_dealloc,
};
