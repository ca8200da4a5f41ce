// The way of an op that has a plan, from torch's call to its result. Everything else goes to Python.
#include "hot.h"

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *ops, *dispatch, *interrupts, *handler_in_force, *signal, *slow, *failed;
} Route;

// A borrowed item of a module's dict; NULL without an exception where it is missing.
static PyObject* global(PyObject* dict, PyObject* name) { return PyDict_GetItemWithError(dict, name); }

// The Python way: no plan known, somebody listens, a handler serves the op, or the SIGINT handler has changed.
static PyObject* python(Route* self, PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  PyObject* all[4] = {func, types, args, kwargs};
  return PyObject_Vectorcall(self->slow, all, 4, NULL);
}

static PyObject* failed(Route* self, PyObject* func, PyObject* args, PyObject* kwargs) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  PyObject* all[4] = {value, func, args, kwargs};
  PyObject* result = PyObject_Vectorcall(self->failed, all, 4, NULL);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return result;
}

static PyObject* replay(PyObject* plan, PyObject* bound, PyObject* args, PyObject* kwargs) {
  PyObject* run = PyObject_GetAttr(plan, s_run);
  if (!run) return NULL;
  PyObject* all[4] = {PyTuple_GET_ITEM(bound, 1), PyTuple_GET_ITEM(bound, 2), args, kwargs};
  PyObject* result = PyObject_Vectorcall(run, all, 4, NULL);
  Py_DECREF(run);
  return result;
}

// The plan of a call as a new reference; NULL without an exception where there is none.
static PyObject* plan_of(PyObject* op, PyObject* args, PyObject* kwargs, PyObject** bound) {
  PyObject *bind = PyObject_GetAttr(op, s_bind), *plan = NULL;
  if (!bind) return NULL;
  PyObject* all[2] = {args, kwargs};
  *bound = PyObject_Vectorcall(bind, all, 2, NULL);
  Py_DECREF(bind);
  if (!*bound) return NULL;
  PyObject* plans = PyObject_GetAttr(op, s_plans);
  if (!plans) return NULL;
  plan = Py_XNewRef(PyDict_GetItemWithError(plans, PyTuple_GET_ITEM(*bound, 0)));
  Py_DECREF(plans);
  return plan;
}

static int ready(Route* self, PyObject* op) {
  PyObject* listener = global(self->dispatch, s_listener);
  if (listener != Py_None) return 0;
  PyObject* handler = PyObject_CallOneArg(self->handler_in_force, self->signal);
  if (!handler) return 0;
  const int same = handler == global(self->interrupts, s_known);
  Py_DECREF(handler);
  if (!same) return 0;
  PyObject* serves = PyObject_GetAttr(op, s_handler);
  Py_XDECREF(serves);
  return serves == Py_None;
}

static PyObject* route_call(PyObject* object, PyObject* const* given, size_t nargs, PyObject* names) {
  Route* self = (Route*)object;
  const Py_ssize_t n = PyVectorcall_NARGS(nargs);
  if (n < 2 || n > 4 || names) {
    PyErr_SetString(PyExc_TypeError, "__torch_dispatch__ takes func, types, args and kwargs");
    return NULL;
  }
  PyObject* func = given[0];
  PyObject* args = n > 2 ? Py_NewRef(given[2]) : PyTuple_New(0);
  PyObject* kwargs = n > 3 && given[3] != Py_None ? Py_NewRef(given[3]) : PyDict_New();
  PyObject *bound = NULL, *plan = NULL, *result = NULL;
  if (!args || !kwargs) goto done;
  PyObject* op = PyDict_GetItemWithError(self->ops, func);
  if (!op || !ready(self, op)) {
    if (!PyErr_Occurred()) result = python(self, func, given[1], args, kwargs);
    goto done;
  }
  Py_INCREF(op);
  plan = plan_of(op, args, kwargs, &bound);
  Py_DECREF(op);
  if (plan) result = replay(plan, bound, args, kwargs);
  if (!result) result = PyErr_Occurred() ? failed(self, func, args, kwargs) : python(self, func, given[1], args, kwargs);
done:
  Py_XDECREF(plan);
  Py_XDECREF(bound);
  Py_XDECREF(args);
  Py_XDECREF(kwargs);
  return result;
}

// Route(ops, dispatch globals, interrupts globals, getsignal, SIGINT, slow, failed)
static PyObject* route_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* p[7];
  if (!PyArg_ParseTuple(args, "O!O!O!OOOO", &PyDict_Type, &p[0], &PyDict_Type, &p[1], &PyDict_Type, &p[2], &p[3], &p[4], &p[5],
                        &p[6]))
    return NULL;
  Route* self = (Route*)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = route_call;
  self->ops = Py_NewRef(p[0]);
  self->dispatch = Py_NewRef(p[1]);
  self->interrupts = Py_NewRef(p[2]);
  self->handler_in_force = Py_NewRef(p[3]);
  self->signal = Py_NewRef(p[4]);
  self->slow = Py_NewRef(p[5]);
  self->failed = Py_NewRef(p[6]);
  return (PyObject*)self;
}

static void route_dealloc(PyObject* object) {
  Route* self = (Route*)object;
  Py_XDECREF(self->ops);
  Py_XDECREF(self->dispatch);
  Py_XDECREF(self->interrupts);
  Py_XDECREF(self->handler_in_force);
  Py_XDECREF(self->signal);
  Py_XDECREF(self->slow);
  Py_XDECREF(self->failed);
  Py_TYPE(object)->tp_free(object);
}

PyTypeObject RouteType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "torch_fl._hot.Route",
    .tp_basicsize = sizeof(Route),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Route, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = route_new,
    .tp_dealloc = route_dealloc,
};
