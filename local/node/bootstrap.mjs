// A Node function's process: what AWS's own client for Node does against the Runtime API, as far as a handler can tell.
//
// node bootstrap.mjs <file.export>, with Lambda's variables in the environment. (AWS's package aws-lambda-ric compiles
// a native part when it is installed; fetch gives up on an answer after 300 s, and the next invocation may take longer.)
import { access } from "node:fs/promises";
import { Agent, request } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const [host, port] = process.env.AWS_LAMBDA_RUNTIME_API.split(":");
const ENDINGS = [".mjs", ".js", ".cjs"];

/** One call of the Runtime API. */
function call(method, path, body) {
  const data = Buffer.from(body ?? "");
  return new Promise((resolve, reject) => {
    const headers = { "Content-Type": "application/json", "Content-Length": data.length };
    const asked = request({ agent, host, port, method, path: `/2018-06-01/runtime/${path}`, headers }, (answer) => {
      const chunks = [];
      answer.on("data", (chunk) => chunks.push(chunk));
      answer.on("end", () => resolve({ headers: answer.headers, body: Buffer.concat(chunks).toString() }));
      answer.on("error", reject);
    });
    asked.on("error", reject);
    asked.end(data);
  });
}

/** An error as Lambda shows it. */
function told(error, type) {
  const known = error instanceof Error;
  return JSON.stringify({
    errorType: type ?? (known ? error.name : typeof error),
    errorMessage: known ? error.message : String(error),
    trace: known && error.stack ? error.stack.split("\n") : [],
  });
}

async function load(named) {
  const dot = named.indexOf(".", named.lastIndexOf("/") + 1);
  const file = join(process.env.LAMBDA_TASK_ROOT, named.slice(0, dot));
  for (const ending of ENDINGS) {
    const there = await access(file + ending).then(() => true, () => false);
    if (!there) continue;
    const module = await import(pathToFileURL(file + ending).href);
    const names = named.slice(dot + 1).split(".");
    const found = [module, module.default].map((top) => names.reduce((at, name) => at?.[name], top));
    const handler = found.find((value) => typeof value === "function");
    if (handler) return handler;
    throw Object.assign(new Error(`${named} is undefined or not exported`), { name: "Runtime.HandlerNotFound" });
  }
  throw Object.assign(new Error(`Cannot find module '${file}'`), { name: "Runtime.ImportModuleError" });
}

function contextOf(headers, done) {
  const deadline = Number(headers["lambda-runtime-deadline-ms"]);
  const custom = headers["lambda-runtime-client-context"];
  return {
    awsRequestId: headers["lambda-runtime-aws-request-id"],
    invokedFunctionArn: headers["lambda-runtime-invoked-function-arn"],
    functionName: process.env.AWS_LAMBDA_FUNCTION_NAME,
    functionVersion: process.env.AWS_LAMBDA_FUNCTION_VERSION,
    memoryLimitInMB: process.env.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    logGroupName: process.env.AWS_LAMBDA_LOG_GROUP_NAME,
    logStreamName: process.env.AWS_LAMBDA_LOG_STREAM_NAME,
    clientContext: custom ? JSON.parse(custom) : undefined,
    callbackWaitsForEmptyEventLoop: true,
    getRemainingTimeInMillis: () => Math.max(0, deadline - Date.now()),
    succeed: (value) => done(null, value),
    fail: (error) => done(error ?? new Error("handled")),
    done,
  };
}

/** The handler's answer: what it returns a promise of, or gives to its callback. */
function run(handler, event, headers) {
  return new Promise((resolve, reject) => {
    const done = (error, value) => (error == null ? resolve(value) : reject(error));
    const returned = handler(event, contextOf(headers, done), done);
    if (typeof returned?.then === "function") returned.then(resolve, reject);
    else if (handler.length < 3) resolve(null); // what is neither promised nor called back is no answer
  });
}

let handler;
let serving = null;
const report = (path, error, type) => call("POST", path, told(error, type)).finally(() => process.exit(1));

// What nobody awaited ends the process, as on Lambda, but not without a word.
process.on("uncaughtException", (error) =>
  report(serving ? `invocation/${serving}/error` : "init/error", error, serving ? undefined : error.name),
);

try {
  handler = await load(process.argv[2]);
} catch (error) {
  await report("init/error", error, error.code === "ERR_MODULE_NOT_FOUND" ? "Runtime.ImportModuleError" : undefined);
}

for (;;) {
  const { headers, body } = await call("GET", "invocation/next");
  serving = headers["lambda-runtime-aws-request-id"];
  process.env._X_AMZN_TRACE_ID = headers["lambda-runtime-trace-id"] ?? "";
  try {
    const value = await run(handler, JSON.parse(body), headers);
    await call("POST", `invocation/${serving}/response`, JSON.stringify(value) ?? "null");
  } catch (error) {
    console.error(error);
    await call("POST", `invocation/${serving}/error`, told(error));
  }
  serving = null;
}
