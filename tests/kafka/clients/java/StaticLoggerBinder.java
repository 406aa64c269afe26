package org.slf4j.impl;

import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.slf4j.ILoggerFactory;
import org.slf4j.Logger;
import org.slf4j.helpers.MessageFormatter;
import org.slf4j.spi.LoggerFactoryBinder;

/** The client's log: it keeps warnings and errors, and drops the rest. */
public final class StaticLoggerBinder implements LoggerFactoryBinder {
    public static final String REQUESTED_API_VERSION = "1.7";
    public static final List<String> WARNINGS = new CopyOnWriteArrayList<>();
    private static final StaticLoggerBinder SINGLETON = new StaticLoggerBinder();

    public static StaticLoggerBinder getSingleton() {
        return SINGLETON;
    }

    @Override
    public ILoggerFactory getLoggerFactory() {
        return StaticLoggerBinder::logger;
    }

    @Override
    public String getLoggerFactoryClassStr() {
        return StaticLoggerBinder.class.getName();
    }

    private static Logger logger(String name) {
        Class<?>[] types = {Logger.class};
        return (Logger) Proxy.newProxyInstance(
            StaticLoggerBinder.class.getClassLoader(), types, (proxy, method, arguments) -> logged(name, method, arguments));
    }

    private static Object logged(String name, Method method, Object[] arguments) {
        switch (method.getName()) {
            case "getName":
                return name;
            case "isWarnEnabled":
            case "isErrorEnabled":
                return true;
            case "warn":
            case "error":
                WARNINGS.add(name + ": " + text(arguments));
                return null;
            default:
                return method.getReturnType() == boolean.class ? false : null;
        }
    }

    private static String text(Object[] arguments) {
        Object[] given = Arrays.copyOfRange(arguments, 1, arguments.length);
        if (given.length == 1 && given[0] instanceof Object[]) {
            given = (Object[]) given[0];
        }
        return MessageFormatter.arrayFormat(String.valueOf(arguments[0]), given).getMessage();
    }
}
